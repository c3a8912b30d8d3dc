"""An example of every public name, each executed: by `make docs`, which shows what it said, and by tests/test_docs.py.

All of them begin after `SETUP`, in a folder of their own; they share its fits, and one may not rely on another. The
value of the last line is shown, unless it is None. `NEEDS` names what an example needs beyond Posteria itself.
"""

SETUP = """
import numpy as np
import posteria as po

random = np.random.default_rng(0)
x = random.normal(size=(40, 2)).astype("float32")
y = x[:, 0] + 0.1 * random.normal(size=40)
labels = (y > 0).astype(int)
model = po.Model(po.nn.mlp((4,), outputs=1))
classifier = po.Model(po.nn.mlp((4,), outputs=2), po.likelihoods.Categorical())
brief = po.MAP(num_epochs=50, polish=False)
posterior = po.fit(model, (x, y), brief)
chains = po.fit(model, (x, y), po.HMC(num_chains=2, num_draws=50, num_warmup=50, num_leapfrog=8))
"""

NEEDS = {
    "posteria.bridges.load": "torch",
    "posteria.bridges.to_torch": "torch",
    "posteria.bridges.register": "torch",
    "posteria.mlflow.save_model": "mlflow",
    "posteria.mlflow.log_model": "mlflow",
    "posteria.logs.TensorBoard": "tensorboardX",
}

CHAINS = "num_chains=2, num_draws=20, num_warmup=30"


def _fitted(call: str, of: str = "model, (x, y)") -> str:
    return f"posterior = po.fit({of}, {call})\nposterior.predict(x[:3])"


METHODS = {
    "MAP": _fitted("po.MAP(num_epochs=50)"),
    "PriorNetwork": _fitted("po.PriorNetwork(num_epochs=50)", "classifier, (x, labels)"),
    "Ensemble": _fitted("po.Ensemble(brief, size=3)"),
    "Folds": _fitted("po.Folds(num_folds=3)"),
    "AnchoredEnsemble": _fitted("po.AnchoredEnsemble(size=3, map=brief)"),
    "Epinet": _fitted("po.Epinet(map=brief, num_epochs=20)"),
    "SWAG": _fitted("po.SWAG(map=brief, num_snapshots=5, rank=4)"),
    "FastGeometricEnsemble": _fitted("po.FastGeometricEnsemble(map=brief, num_snapshots=3, learning_rate=1e-4)"),
    "Subspace": _fitted(f"po.Subspace(po.NUTS({CHAINS}), basis='random', rank=2)"),
    "SVGD": _fitted("po.SVGD(size=5, num_epochs=50)"),
    "MetropolisHastings": _fitted(f"po.MetropolisHastings({CHAINS})"),
    "Barker": _fitted(f"po.Barker({CHAINS})"),
    "HMC": _fitted(f"po.HMC({CHAINS}, num_leapfrog=8)"),
    "NUTS": _fitted(f"po.NUTS({CHAINS})"),
    "EllipticalSlice": _fitted(f"po.EllipticalSlice({CHAINS})"),
    "MCLMC": _fitted(f"po.MCLMC({CHAINS})"),
    "AdjustedMCLMC": _fitted(f"po.AdjustedMCLMC({CHAINS})"),
    "ParallelTempering": _fitted(f"po.ParallelTempering({CHAINS})"),
    "SGLD": _fitted(f"po.SGLD({CHAINS}, batch_size=20)"),
    "SGHMC": _fitted(f"po.SGHMC({CHAINS}, batch_size=20)"),
    "SGNHT": _fitted(f"po.SGNHT({CHAINS}, batch_size=20)"),
    "SMSUBU": _fitted(f"po.SMSUBU({CHAINS}, batch_size=20)"),
    "ExpectationPropagation": _fitted("po.ExpectationPropagation(num_passes=5)"),
    "Laplace": _fitted("po.Laplace(structure='full', map=brief)"),
    "MeanField": _fitted("po.MeanField(num_epochs=50)"),
    "VariationalOnlineNewton": _fitted("po.VariationalOnlineNewton(num_epochs=50)"),
    "InfiniteWidth": _fitted("po.InfiniteWidth()"),
    "DeepKernel": _fitted("po.DeepKernel(num_inducing=10, num_epochs=50)"),
    "FunctionSpaceVI": _fitted("po.FunctionSpaceVI(prior=po.functions.RBF(), num_epochs=20)"),
    "MCDropout": _fitted("po.MCDropout(rate=0.1, num_epochs=50)"),
    "GaussianDropout": _fitted("po.GaussianDropout(alpha=0.1, num_epochs=50)"),
    "VariationalDropout": _fitted("po.VariationalDropout(num_epochs=50)"),
    "SparseVariationalDropout": _fitted("po.SparseVariationalDropout(num_epochs=50)"),
    "ConcreteDropout": _fitted("po.ConcreteDropout(num_epochs=50)"),
}

VERBS = {
    "Baseline": """
class Average(po.Baseline):
    about = "The average of y."
    def fit_numbers(self, x, y):
        return lambda x: (np.full(len(x), y.mean()), None)
Average().about
""",
    "Classifier": """
m = po.Classifier(brief, "mlp:4").fit(x, labels)
m.predict(x[:3]), m.predict_proba(x[:3])
""",
    "Kernel": """
walk = po.Kernel(init=lambda key, params, data: params, step=lambda key, state, data: (state + 1, ()))
walk.step(None, 0, None)
""",
    "Machine": "po.plan(model, (x, y), po.HMC(), rehearse=False).on(po.Machine('eight', num_devices=8))",
    "Method": "isinstance(po.HMC(), po.Method)",
    "Model": "po.Model(po.nn.mlp((50, 50)), po.likelihoods.StudentT(), prior=po.priors.Normal(0.5)).described()",
    "Network": """
line = po.Network(init=lambda key, x: {"w": np.zeros(x.shape[-1], "float32")}, apply=lambda params, x: x @ params["w"])
po.fit(po.Model(line), (x, y), po.MAP(num_epochs=50)).predict(x[:3])
""",
    "Posterior": "chains.functions(0, x[:3], 100).shape, isinstance(chains, po.Posterior)",
    "Predictive": """
p = chains.predict(x[:3])
p.mean, p.interval(0.9), p.log_prob(y[:3])
""",
    "Regressor": """
m = po.Regressor(brief, "mlp:4").fit(x, y)
m.predict(x[:3], return_std=True), m.interval(x[:3], 0.9)
""",
    "Run": "'stage' in dir(po.Run), 'progress' in dir(po.Run)",
    "Target": """
import jax
target = po.Target(model, (x, y))
params = target.init(jax.random.key(0))
target.log_prior(params), target.log_density(params)
""",
    "adapters": """
import jax
trained = posterior.sample(0, 1)
adapted = po.adapters(model.network, rank=1, weights=jax.tree.map(lambda leaf: leaf[0], trained))
po.fit(po.Model(adapted), (x, y), po.MAP(num_epochs=50)).predict(x[:3])
""",
    "clear": "po.clear()",
    "compare": """
found = po.compare(model, (x, y), [brief], reference=None, baselines=False)
print(found)
""",
    "connect": """
import jax
from posteria.models.target import Density
ring = lambda w: -50.0 * (jax.numpy.sqrt(w @ w) - 1.0) ** 2  # of radius 1
a, b = np.array([1.0, 0.0], "float32"), np.array([-0.5, 0.87], "float32")
curve = po.connect(a, b, Density(ring, a), num_steps=500)
curve(0.5), curve.excess(), curve.barrier()
""",
    "distributed": "po.distributed  # on every host, before anything else: po.distributed('host-0:1234', 4, process_id)",
    "fit": """
posterior = po.fit(model, (x, y), brief, key=0, out="run")
posterior
""",
    "grade": """
found = po.grade({"map": posterior, "hmc": chains}, reference="hmc", data=(x, y))
print(found)
""",
    "infer": "po.likelihoods.Gaussian(noise=po.infer), po.priors.FanIn(scale=po.infer)",
    "load": """
posterior.save("saved")
po.load("saved").predict(x[:3])
""",
    "log_evidence": "po.log_evidence(model, (x, y), po.Laplace(structure='full', map=brief))",
    "mesh": "po.mesh(chains=1, data=1)",
    "network": """
net = po.network((lambda key, x: {"w": np.ones((2, 1), "float32")}, lambda params, x: x @ params["w"]))
net.apply(net.init(None, x), x[:3])
""",
    "plan": "print(po.plan(model, (x, y), brief))",
    "publish": """
size = po.publish(posterior, "published", (x, y))
po.load("published").predict(x[:3])
""",
    "register": """
from dataclasses import dataclass
@po.register
@dataclass(frozen=True)
class Best(po.MAP):
    "The mode, by another name."
po.fit(model, (x, y), Best(num_epochs=50)).facts["method"]["name"]
""",
    "resume": """
po.fit(model, (x, y), brief, out="interrupted")
po.resume("interrupted", (x, y)).facts["is_whole"]
""",
    "sample": """
draws = po.sample(lambda w: -0.5 * ((w / np.array([1.0, 3.0])) ** 2).sum(), np.zeros(2), po.NUTS(num_chains=2, num_draws=100))
draws.params.shape, draws.params.std((0, 1))
""",
    "surface": """
target = po.Target(model, (x, y))
po.surface(target, random.normal(size=(3, 18)), num=5).losses.round(1)
""",
    "use_cores": "po.use_cores()",
}

PRIORS = {
    "ByPath": "po.Model(po.nn.mlp((4,)), prior=po.priors.ByPath({'*bias': po.priors.Normal(1.0)}, po.priors.FanIn())).prior",
    "EmpiricalCovariance": "po.Model(po.nn.mlp((4,)), prior=po.priors.EmpiricalCovariance(x)).prior",
    "FanIn": "po.Model(po.nn.mlp((4,)), prior=po.priors.FanIn(scale=2.0)).prior",
    "FromPosterior": """
first = po.fit(model, (x[:20], y[:20]), po.MeanField(num_epochs=50))
po.fit(po.Model(model.network, prior=po.priors.FromPosterior(first)), (x[20:], y[20:]), brief).predict(x[:3])
""",
    "InputScales": "po.Model(po.nn.mlp((4,)), prior=po.priors.InputScales(po.priors.FanIn())).prior",
    "Leaf": """
leaf = po.priors.Leaf("layer/kernel", (2, 4), np.dtype("float32"), fan_in=2)
po.priors.FanIn().unit(leaf)
""",
    "Prior": "isinstance(po.priors.Normal(1.0), po.priors.Prior)",
    "matched": "po.priors.matched(po.nn.mlp((4,)), po.functions.RBF(), x, num_steps=20, num_functions=20)",
    "matched_scales": "po.priors.matched_scales(po.nn.mlp((4,)), po.functions.RBF(), x, num_steps=20, num_functions=20)",
}
for _name, _call in {
    "HorseshoeLike": "HorseshoeLike(0.1)",
    "Laplace": "Laplace(1.0)",
    "LogUniform": "LogUniform()",
    "Logistic": "Logistic(1.0)",
    "Normal": "Normal(0.5)",
    "ScaleMixture": "ScaleMixture(std_wide=1.0, std_narrow=0.1)",
    "StudentT": "StudentT(df=3.0)",
}.items():
    PRIORS[_name] = f"""
leaf = po.priors.Leaf("kernel", (3,), np.dtype("float32"), fan_in=3)
po.priors.{_call}.log_prob(np.array([0.1, 0.2, 0.3]), leaf)
"""

_OWN = "own, outputs = likelihood.init(None), np.array([[0.5], [1.0]], 'float32')"
LIKELIHOODS = {
    "Likelihood": "isinstance(po.likelihoods.Gaussian(), po.likelihoods.Likelihood)",
}
for _name, _call, _y, _outputs in (
    ("AsymmetricLaplace", "AsymmetricLaplace(level=0.9)", "[[0.4], [1.2]]", "[[0.5], [1.0]]"),
    ("Bernoulli", "Bernoulli()", "[0, 1]", "[[0.5], [1.0]]"),
    ("Categorical", "Categorical()", "[0, 1]", "[[0.5, 0.1], [1.0, 2.0]]"),
    ("Gaussian", "Gaussian(noise=0.1)", "[[0.4], [1.2]]", "[[0.5], [1.0]]"),
    ("HeteroscedasticGaussian", "HeteroscedasticGaussian()", "[[0.4], [1.2]]", "[[0.5, -1.0], [1.0, 0.0]]"),
    ("LabelSmoothing", "LabelSmoothing(rate=0.05)", "[0, 1]", "[[0.5, 0.1], [1.0, 2.0]]"),
    ("NegativeBinomial", "NegativeBinomial(concentration=2.0)", "[[0], [3]]", "[[0.5], [1.0]]"),
    ("NoisyDirichlet", "NoisyDirichlet()", "[0, 1]", "[[0.5, 0.1], [1.0, 2.0]]"),
    ("Poisson", "Poisson()", "[[0], [3]]", "[[0.5], [1.0]]"),
    ("StudentT", "StudentT(df=4.0, scale=0.1)", "[[0.4], [1.2]]", "[[0.5], [1.0]]"),
):
    LIKELIHOODS[_name] = f"""
likelihood = po.likelihoods.{_call}
likelihood.log_prob(likelihood.init(None), np.array({_outputs}, "float32"), np.array({_y}))
"""
LIKELIHOODS["VaryingNoise"] = (
    "po.fit(po.Model(po.nn.mlp((4,), outputs=2), po.likelihoods.VaryingNoise()), (x, y), brief).predict(x[:3])"
)

FUNCTIONS = {
    "FunctionPrior": "isinstance(po.functions.RBF(), po.functions.FunctionPrior)",
    "Product": "(po.functions.Linear() * po.functions.Periodic(1.0))(x[:2], x[:2])",
    "Sum": "(po.functions.Linear() + po.functions.RBF())(x[:2], x[:2])",
}
FUNCTIONS |= {
    name: f"po.functions.{call}(x[:2], x[:2])"
    for name, call in (
        ("Linear", "Linear()"),
        ("Matern", "Matern(0.5)"),
        ("Periodic", "Periodic(1.0)"),
        ("RBF", "RBF(0.5)"),
    )
}

_CLASSES = "p, truth = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]]), np.array([0, 1, 0])\n"
_DRAWN = "drawn, truth = np.random.default_rng(0).normal(size=(100, 3)), np.array([0.1, -0.5, 1.0])\n"
METRICS = {
    "accuracy": _CLASSES + "po.metrics.accuracy(p, truth)",
    "agreement": _CLASSES + "po.metrics.agreement(p, p[::-1])",
    "auroc": "po.metrics.auroc(np.array([0.1, 0.2]), np.array([0.15, 0.9]))",
    "brier": _CLASSES + "po.metrics.brier(p, truth)",
    "coverage": "po.metrics.coverage(np.zeros(4), np.ones(4), np.array([0.5, 2.0, 0.1, 0.9]))",
    "crps_from_quantiles": "levels = po.metrics.quantile_levels(9)\npo.metrics.crps_from_quantiles(levels[:, None] * np.ones((9, 3)), np.array([0.1, 0.5, 0.9]))",
    "crps_from_samples": _DRAWN + "po.metrics.crps_from_samples(drawn, truth)",
    "crps_gaussian_mixture": _DRAWN + "po.metrics.crps_gaussian_mixture(drawn, np.ones_like(drawn), truth)",
    "ece": _CLASSES + "po.metrics.ece(p, truth)",
    "joint_log_loss": "log_probs = np.log(np.full((5, 12), 0.5))\npo.metrics.joint_log_loss(log_probs, po.metrics.neighbours(x[:12], 4))",
    "negative_log_likelihood": "po.metrics.negative_log_likelihood(np.log([0.5, 0.25]))",
    "neighbours": "po.metrics.neighbours(x[:6], 3)",
    "quantile_levels": "po.metrics.quantile_levels(4)",
    "quantile_losses": "levels = po.metrics.quantile_levels(4)\npo.metrics.quantile_losses(levels[:, None] * np.ones((4, 2)), np.array([0.1, 0.9]))",
    "rmse": "po.metrics.rmse(np.array([1.0, 2.0]), np.array([1.0, 4.0]))",
    "total_variation": _CLASSES + "po.metrics.total_variation(p, p[::-1])",
    "wasserstein": "q = po.metrics.quantile_levels(4)[:, None]\npo.metrics.wasserstein(q, q + 1.0)",
    "wasserstein_1_from_cdf": "grid = np.linspace(0, 2, 5)\npo.metrics.wasserstein_1_from_cdf((grid >= 1.0)[:, None] * 1.0, (grid >= 1.5)[:, None] * 1.0, grid)",
    "wasserstein_from_samples": _DRAWN + "po.metrics.wasserstein_from_samples(drawn, drawn + 1.0)",
    "width": "po.metrics.width(np.zeros(3), np.array([1.0, 2.0, 3.0]))",
}

DIAGNOSTICS = {
    name: f"drawn = np.random.default_rng(0).normal(size=(4, 200))  # (chain, draw)\npo.diagnostics.{name}(drawn)"
    for name in ("ess_bulk", "ess_mean", "ess_tail", "mcse_mean", "mcse_std", "rhat")
}
DIAGNOSTICS["autocorrelation"] = (
    "drawn = np.random.default_rng(0).normal(size=(4, 200))\npo.diagnostics.autocorrelation(drawn, max_lag=3)[0]"
)

_FRAME = (
    'import pandas as pd\nframe = pd.DataFrame({"size": x[:, 0], "colour": np.tile(["red", "blue"], 20), "price": y})\n'
)
DATA = {
    "ColumnPlan": _FRAME + "po.data.plan_table(frame, 'price').columns[0]",
    "Dataset": "po.data.load('iris').class_names",
    "Encoded": _FRAME + "table = po.data.from_frame(frame, 'price')\ntable.encoder.encode(frame[:2]).x",
    "Encoder": _FRAME + "po.data.from_frame(frame, 'price').encoder.feature_names",
    "Listing": "po.data.names()[0]",
    "Preparation": "po.Regressor(brief, 'mlp:4').fit(x, y).preparation_.kind",
    "Source": "np.save('x.npy', x), np.save('y.npy', y)\npo.data.source('x.npy', 'y.npy')",
    "Standardiser": "po.data.Standardiser.fit(x).mean",
    "Table": _FRAME + "po.data.from_frame(frame, 'price').x[:2]",
    "TablePlan": _FRAME + "print(po.data.plan_table(frame, 'price'))",
    "batch_indices": "import jax\npo.data.batch_indices(jax.random.key(0), 3, num_data=40, batch_size=4)",
    "check_same_length": "po.data.check_same_length(x, y)",
    "check_x": "po.data.check_x(x).shape",
    "from_frame": _FRAME + "po.data.from_frame(frame, 'price').kind",
    "load": "po.data.load('diabetes').x.shape",
    "names": "[listing.name for listing in po.data.names()][:4]",
    "num_rows": "po.data.num_rows(x)",
    "num_steps_per_epoch": "po.data.num_steps_per_epoch(40, 16)",
    "plan_table": _FRAME + "print(po.data.plan_table(frame, 'price'))",
    "read_csv": _FRAME + "frame.to_csv('houses.csv', index=False)\npo.data.read_csv('houses.csv', 'price').x.shape",
    "read_frame": _FRAME + "frame.to_csv('houses.csv', index=False)\npo.data.read_frame('houses.csv').head(2)",
    "rows": "po.data.rows(x, np.array([0, 2]))",
    "source": "np.save('x.npy', x), np.save('y.npy', y.astype('float32'))\nrows = po.data.source('x.npy', 'y.npy')\npo.fit(model, rows, po.MAP(num_epochs=5, batch_size=20, polish=False)).predict(x[:3])",
    "take": "import jax.numpy as jnp\npo.data.take((jnp.asarray(x), jnp.asarray(y)), jnp.array([0, 2]))",
    "train_test": "train, test = po.data.train_test(40, 0, test=0.25)\nlen(train), len(test)",
    "uci_splits": "splits = po.data.uci_splits(506)\nlen(splits), len(splits[0][1])",
}

SHIFT = {
    "COMMON": "po.shift.COMMON",
    "CORRUPTIONS": "po.shift.CORRUPTIONS",
    "SEVERITIES": "po.shift.SEVERITIES",
    "TABLE_SHIFTS": "po.shift.TABLE_SHIFTS",
    "attack": "moved = po.shift.attack(posterior, x[:3], y[:3], size=0.1)\nabs(moved - x[:3]).max()",
    "corrupt": "images = np.full((2, 32, 32, 3), 0.5, 'float32')\npo.shift.corrupt(images, 'gaussian_noise', severity=3, key=0).std()",
    "shift_table": "po.shift.shift_table(x, next(iter(po.shift.TABLE_SHIFTS)), severity=2)[0][:2]",
}

PLOTS = {
    "bands": "line = np.linspace(-2, 2, 50, dtype='float32')[:, None]\nfitted = po.fit(model, (x[:, :1], y), brief)\npo.plots.bands(line, fitted.predict(line), (x[:, :1], y))",
    "before_and_after": "from posteria.plots.drawn_functions import Line\ndrawn = random.normal(size=(30, 20))\npo.plots.before_and_after([Line(name='x', x=np.linspace(-1, 1, 20), before=drawn)], 'y')",
    "functions": "line = np.linspace(-2, 2, 20)\npo.plots.functions(line, random.normal(size=(50, 20)).cumsum(1))",
    "plane": "po.plots.plane(po.surface(po.Target(model, (x, y)), random.normal(size=(3, 18)), num=5))",
    "predicted": "po.plots.predicted(chains.predict(x), y)",
    "quantiles_of_truth": "po.plots.quantiles_of_truth(chains.predict(x), y)",
    "reliability": "po.plots.reliability(chains.predict(x), y)",
    "rhat": "po.plots.rhat(chains.diagnose(x))",
    "traces": "po.plots.traces(chains)",
}

NN = {
    "build": "po.nn.build({'name': 'mlp', 'settings': {'hidden': [4], 'outputs': 1}}).described()",
    "cnn_lstm": "po.nn.cnn_lstm(vocabulary=100, outputs=2).described()",
    "lenet5": "import jax\nnet = po.nn.lenet5(outputs=10)\nnet.apply(net.init(jax.random.key(0), np.zeros((1, 28, 28, 1))), np.zeros((2, 28, 28, 1))).shape",
    "lenet_300_100": "po.nn.lenet_300_100(outputs=10).described()",
    "mlp": "po.Model(po.nn.mlp((50, 50), outputs=1, activation='tanh')).described()",
    "parse": "po.nn.parse('mlp:50,50', outputs=1).described()",
    "resnet20_frn": "po.nn.resnet20_frn(outputs=10).described()",
}

BRIDGES = {
    "load": """
import torch
from flax import nnx
trained = torch.nn.Linear(2, 1)
net = po.bridges.load(lambda key: nnx.Linear(2, 1, rngs=nnx.Rngs(key)), trained.state_dict(), example=x[:1])
print(net)
""",
    "register": """
import jax.numpy as jnp
po.bridges.register("aten.erfinv.default", jnp.arctanh).__name__  # an operation that the table lacks
""",
    "to_torch": """
import torch
module = torch.nn.Linear(2, 1)
fitted = po.fit(po.Model(po.network(module, example=x)), (x, y), brief)
po.bridges.to_torch(fitted, module, num_draws=1)
""",
}

LOGS = {
    "CSV": "po.fit(model, (x, y), brief, on_log=po.logs.CSV('log.csv'))\nopen('log.csv').readline()",
    "TensorBoard": "po.fit(model, (x, y), brief, on_log=po.logs.TensorBoard('board')).num_draws",
}
MLFLOW = {
    "save_model": "po.mlflow.save_model(posterior, 'logged')\nimport mlflow\nmlflow.pyfunc.load_model('logged').predict(x[:3])",
    "log_model": "# inside a run: with mlflow.start_run(): po.mlflow.log_model(posterior, 'houses')\npo.mlflow.log_model",
}
ERRORS = {
    name: f"issubclass(po.errors.{name}, po.errors.PosteriaError)"
    for name in (
        "CapabilityError",
        "DataError",
        "DensityError",
        "DiskError",
        "NetworkError",
        "StoreError",
        "TooLargeError",
    )
}
ERRORS["PosteriaError"] = "issubclass(po.errors.PosteriaError, Exception)"
ERRORS["SettingError"] = """
try:
    po.HMC(num_draws=0)
except po.errors.SettingError as error:
    print(error)
"""

EXAMPLES = {
    f"{home}.{name}": code.strip()
    for home, part in {
        "posteria": METHODS | VERBS,
        "posteria.priors": PRIORS,
        "posteria.likelihoods": LIKELIHOODS,
        "posteria.functions": FUNCTIONS,
        "posteria.metrics": METRICS,
        "posteria.diagnostics": DIAGNOSTICS,
        "posteria.data": DATA,
        "posteria.shift": SHIFT,
        "posteria.plots": PLOTS,
        "posteria.nn": NN,
        "posteria.bridges": BRIDGES,
        "posteria.logs": LOGS,
        "posteria.mlflow": MLFLOW,
        "posteria.errors": ERRORS,
    }.items()
    for name, code in part.items()
}
