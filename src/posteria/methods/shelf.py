"""Every built-in method: its name in the command line, and where it lives. `po.<Class>` follows from this list."""

SHELF = {
    # points
    "map": "posteria.methods.points.map:MAP",
    "prior-network": "posteria.methods.points.prior_network:PriorNetwork",
    # ensembles
    "ensemble": "posteria.methods.ensembles.ensemble:Ensemble",
    "folds": "posteria.methods.ensembles.folds:Folds",
    "anchored-ensemble": "posteria.methods.ensembles.anchored_ensemble:AnchoredEnsemble",
    "epinet": "posteria.methods.ensembles.epinet:Epinet",
    "swag": "posteria.methods.ensembles.swag:SWAG",
    "fast-geometric-ensemble": "posteria.methods.ensembles.fast_geometric_ensemble:FastGeometricEnsemble",
    "subspace": "posteria.methods.ensembles.subspace:Subspace",
    "svgd": "posteria.methods.ensembles.svgd:SVGD",
    # chains
    "metropolis-hastings": "posteria.methods.chains.metropolis:MetropolisHastings",
    "barker": "posteria.methods.chains.barker:Barker",
    "hmc": "posteria.methods.chains.hmc:HMC",
    "nuts": "posteria.methods.chains.nuts:NUTS",
    "elliptical-slice": "posteria.methods.chains.elliptical_slice:EllipticalSlice",
    "mclmc": "posteria.methods.chains.mclmc:MCLMC",
    "adjusted-mclmc": "posteria.methods.chains.mclmc:AdjustedMCLMC",
    "parallel-tempering": "posteria.methods.chains.parallel_tempering:ParallelTempering",
    # stochastic
    "sgld": "posteria.methods.stochastic.sgld:SGLD",
    "sghmc": "posteria.methods.stochastic.sghmc:SGHMC",
    "sgnht": "posteria.methods.stochastic.sgnht:SGNHT",
    "sms-ubu": "posteria.methods.stochastic.sms_ubu:SMSUBU",
    # gaussians
    "expectation-propagation": "posteria.methods.gaussians.expectation_propagation:ExpectationPropagation",
    "laplace": "posteria.methods.gaussians.laplace:Laplace",
    # variational
    "mean-field": "posteria.methods.variational.mean_field:MeanField",
    "variational-online-newton": "posteria.methods.variational.variational_online_newton:VariationalOnlineNewton",
    # functions
    "infinite-width": "posteria.methods.functions.infinite_width:InfiniteWidth",
    "deep-kernel": "posteria.methods.functions.deep_kernel:DeepKernel",
    "function-space-vi": "posteria.methods.functions.function_space_vi:FunctionSpaceVI",
    # dropout
    "mc-dropout": "posteria.methods.dropout.fixed_rate:MCDropout",
    "gaussian-dropout": "posteria.methods.dropout.fixed_rate:GaussianDropout",
    "variational-dropout": "posteria.methods.dropout.variational_dropout:VariationalDropout",
    "sparse-variational-dropout": "posteria.methods.dropout.sparse_variational_dropout:SparseVariationalDropout",
    "concrete-dropout": "posteria.methods.dropout.concrete_dropout:ConcreteDropout",
}
