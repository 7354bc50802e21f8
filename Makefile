# `make matmul` creates .venv and runs the sharded matmul; `make test` adds the test tools and
# runs the tests but for those marked slow; `make test-all` runs all. `make wheel` makes dist/*.whl.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 6

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: matmul wheel test test-all xla lint docs bench faults clean

matmul: $(VENV)/.installed
	@$(BIN)/pyreactant matmul $(ARGS)

wheel:
	@$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls -t dist/pyreactant-*.whl | head -n 1 | sed 's/^/the wheel is /'

test: $(VENV)/.dev-installed
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile -m "not slow" $(ARGS)

test-all: $(VENV)/.dev-installed
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

# A PJRT plugin with another build of XLA's CPU backend; its metadata would replace jax, so --no-deps.
PLUGIN := $(VENV)/plugin
xla: $(VENV)/.dev-installed $(PLUGIN)/.installed
	$(BIN)/python -m pytest tests/backend tests/crosscheck/test_plugin.py tests/bisect/test_plugin.py \
	  --plugin $(PLUGIN)/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so $(ARGS)

$(PLUGIN)/.installed:
	@$(INSTALL) --no-deps --target $(PLUGIN) lammps-jax-pjrt-cpu==0.11.2
	@touch $@

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd julia && ../$(BIN)/fatou --color never format --check . ../examples && ../$(BIN)/fatou --color never lint . ../examples

docs: $(VENV)/.dev-installed
	$(BIN)/python docs/_generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in build/docs; its first page is build/docs/index.html"

bench: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks --json bench.json $(ARGS)

faults: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.faults --json faults.json $(ARGS)
	$(BIN)/python -m benchmarks.faults_more --json faults-more.json
	$(BIN)/python -m benchmarks.jobs --only faults

clean:
	rm -rf $(VENV)

# The markers are created last, so that make repeats an interrupted install.
$(VENV)/.installed: pyproject.toml
	@$(create)
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.dev-installed: pyproject.toml
	@$(create)
	@$(INSTALL) -e '.[dev]'
	@touch $(VENV)/.installed $@

define create
$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(f"pyreactant needs Python 3.11 or newer, this is {sys.version.split()[0]}; name another with: make PYTHON=python3.12 matmul")'
echo "setting up $(VENV) (once; a minute or so) ..."
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
endef
