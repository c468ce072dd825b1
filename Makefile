# Targets for developers. Each works on a fresh clone and creates the environment on first use.
#
#   make repro     pull data from the embedded remote, run dvc repro, print the leaderboard, write its page to site/
#   make test      run the test suite, linters and type checks
#   make test-all  also the slow tests, and those that need an environment of their own
#   make test-gpu  run the tests on the graphics card, if there is one
#   make docs      build the documentation site in site-docs/
#   make public    run the suite of public brain data (from their URLs, or from the folder NEUROLEDGER_MIRROR)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
# Write bytecode, so that the programs started by tests and stages need not compile all modules.
export PYTHONDONTWRITEBYTECODE :=
export GX_ANALYTICS_ENABLED := false

.PHONY: docs parity repro test test-all public verify check fix test-slow test-gpu test-hub test-braindecode test-frameworks mutants hostile perf simulate calibrate schemas reference-data miniatures clean

repro: $(READY)
	@dvc pull --quiet
	@dvc repro
	@neuroledger leaderboard
	@echo "pages: site/index.html"

test: $(READY)
	@dvc pull --quiet
	@ruff check .
	@ruff format --check .
	@mypy --num-workers auto
	@lint-imports --no-cache
	@OMP_NUM_THREADS=1 pytest -n logical --dist worksteal

public: $(READY)
	neuroledger fetch --suite public
	neuroledger validate --suite public
	neuroledger run --suite public
	neuroledger leaderboard --suite public

# Build the documentation in site-docs/, which can be opened from disk, with the stored outputs of the notebooks.
docs: $(READY)
	mkdocs build --strict
	@echo "documents: site-docs/index.html"

verify: $(READY)
	neuroledger verify --recompute

check: $(READY)
	neuroledger check

fix: $(READY)
	ruff check --fix .
	ruff format .

# Every suite, also after one fails: about two hours on two cores, mostly for installing four environments.
SUITES := test test-slow test-hub test-braindecode test-frameworks parity
test-all:
	@$(MAKE) --keep-going $(SUITES)

test-slow: $(READY)
	OMP_NUM_THREADS=1 pytest -n logical --dist worksteal -m "not hub and not braindecode and not frameworks"

# The rows of the tests on a graphics card, on a machine that has one; on others, one line says so.
test-gpu: $(READY)
	@if python -m tests.devices; then OMP_NUM_THREADS=1 pytest -n 0 -q -k "cuda or on_card" $$(grep -rl "tests.devices" tests --include="test_*.py"); fi

# Test architectures of torchvision, timm and transformers, in a separate environment with the pinned torch.
test-hub: .cache/hub/.ready
	.cache/hub/bin/python -m pytest -m hub tests/hub

.cache/hub/.ready: pyproject.toml requirements.txt
	@test -x .cache/hub/bin/python || $(PYTHON) -m venv .cache/hub
	@.cache/hub/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@.cache/hub/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.txt
	@.cache/hub/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[hub]"
	@touch .cache/hub/.ready

# Test networks of braindecode, in a separate environment without torchaudio, which needs other versions of torch.
test-braindecode: .cache/braindecode/.ready
	.cache/braindecode/bin/python -m pytest -m braindecode tests/braindecode

.cache/braindecode/.ready: pyproject.toml requirements.txt
	@test -x .cache/braindecode/bin/python || $(PYTHON) -m venv .cache/braindecode
	@.cache/braindecode/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@.cache/braindecode/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.txt
	@.cache/braindecode/bin/python -m pip install --quiet --disable-pip-version-check --editable . \
		skorch wfdb torchinfo linear_attention_transformer docstring_inheritance h5py
	@.cache/braindecode/bin/python -m pip install --quiet --disable-pip-version-check --no-deps braindecode==1.8.1
	@touch .cache/braindecode/.ready

# Test spiking networks of other frameworks, without their dependencies, which include another torch.
test-frameworks: .cache/frameworks/.ready
	.cache/frameworks/bin/python -m pytest -m frameworks tests/frameworks

.cache/frameworks/.ready: pyproject.toml requirements.txt
	@test -x .cache/frameworks/bin/python || $(PYTHON) -m venv .cache/frameworks
	@.cache/frameworks/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@.cache/frameworks/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.txt
	@.cache/frameworks/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable . \
		spikingjelly==2.0.0 norse==1.1.0 sinabs==3.1.3 rockpool==3.1.0 neurobench==2.3.0 nirtorch==2.6 loguru==0.7.3 \
		pbr SciencePlots
	@touch .cache/frameworks/.ready

# Score simulated packages with Brain-Score's code, in separate environments, and with ours: docs/brainscore_parity.md.
PARITY_NEEDS := "numpy<2" "pandas<2.3" "xarray<2022.6" "scipy<1.15" netCDF4 tqdm boto3 fire peewee pybtex \
	"importlib-metadata<5" networkx psutil requests Pillow PyYAML psycopg2-binary gitpython result-caching
parity: $(READY) .cache/parity/.ready .cache/parity-language/.ready
	python -m tests.parity .cache/parity/bin/python .cache/parity-packages --language .cache/parity-language/bin/python --page

.cache/parity/.ready:
	@test -x .cache/parity/bin/python || $(PYTHON) -m venv .cache/parity
	@.cache/parity/bin/python -m pip install --quiet --disable-pip-version-check $(PARITY_NEEDS) "scikit-learn==1.5.1" sympy
	@.cache/parity/bin/python -m pip install --quiet --disable-pip-version-check --no-deps brainscore_core==2.5.0 brainscore_vision==2.4.2
	@touch .cache/parity/.ready

.cache/parity-language/.ready:
	@test -x .cache/parity-language/bin/python || $(PYTHON) -m venv .cache/parity-language
	@.cache/parity-language/bin/python -m pip install --quiet --disable-pip-version-check $(PARITY_NEEDS) "scikit-learn>=1.6,<1.7" \
		pyparsing torch
	@.cache/parity-language/bin/python -m pip install --quiet --disable-pip-version-check --no-deps brainscore_core==2.5.0 \
		brainscore_language==2.3.0
	@touch .cache/parity-language/.ready

# Mutation tests of the kernel, for example MUTANTS="--only 'src/neuroledger/stats/*'"
mutants: $(READY)
	python -m tests.mutants $(MUTANTS)

# Test malicious proposals and what follows a clean review, failures of every file operation, damaged files and lost workers; `make test` runs a short part.
hostile: $(READY)
	python -m tests.hostile.proposals
	python -m tests.hostile.proposals.chain
	python -m tests.hostile.crash_points
	python -m tests.hostile.arguments 150
	python -m tests.hostile.fuzz --minutes 7.5
	OMP_NUM_THREADS=1 pytest -q -m "slow or not slow" tests/engine/test_workers.py

perf: $(READY)
	python -m perf

# Simulations with known truth, independent of the calibration: the second table of docs/calibration.md
simulate: $(READY)
	OMP_NUM_THREADS=1 python -m tests.simulations --page
	OMP_NUM_THREADS=1 python -m tests.stats.test_claims

calibrate: $(READY)
	neuroledger calibrate

schemas: $(READY)
	neuroledger check --write-schemas

# Simulate a small stand-in of every pinned set of NeuralBench, pin, validate and decode it, for example SETS="Kemp2000Analysis.sleep_stage"
miniatures: $(READY)
	OMP_NUM_THREADS=1 python -m tools.miniatures $(SETS)

reference-data: $(READY)
	python -m tools.generate

# Install torch first, in the pinned version, so that no resolver selects another; it has no hash here, since its builds
# differ between platforms. Then install exactly the files with hashes in requirements.txt, and then this package.
$(READY): pyproject.toml requirements.txt
	@test -x $(BIN)/python || { echo "making $(VENV) …"; $(PYTHON) -m venv $(VENV); }
	@echo "installing packages …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 uv==0.13.9
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes --requirement requirements.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $(READY)

clean:
	rm -rf $(VENV) .cache site

# Write requirements.txt from the extras that the tests and the pipeline use, resolved in a separate environment.
.PHONY: lock
lock:
	rm -rf .cache/lock build && $(PYTHON) -m venv .cache/lock
	.cache/lock/bin/python -m pip install --quiet torch==2.13.0
	.cache/lock/bin/python -m pip install --quiet ".[pipeline,torch,plots,eeg,bids,spiking,cluster,dev]"
	.cache/lock/bin/python -m pip freeze --exclude neuroledger | grep -v '^torch==' > .cache/lock/requirements.in
	.cache/lock/bin/python -m pip install --quiet uv
	.cache/lock/bin/uv pip compile --quiet --no-deps --generate-hashes --universal --python-version 3.11 --no-header \
		--no-annotate --output-file requirements.txt .cache/lock/requirements.in
	rm -rf build

# Update the sentence, the picture and the leaderboard in the README from the records.
.PHONY: readme
readme: $(READY)
	python -m tests.docs.test_documents
