# quire's commands: `make` or `make help` lists them. They need git, make and Python 3.11 or newer, and keep everything in .venv.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# The tests start hundreds of processes: each would compile quire anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN  := $(VENV)/bin
# No cache: nothing is left outside of this directory.
PIP  := $(BIN)/python -m pip install --disable-pip-version-check --no-cache-dir -c constraints.txt

# A stamp says which extras are installed, for this content of the two files: when one changes, they are installed again.
CONTENT := $(shell cat pyproject.toml constraints.txt | cksum | cut -d ' ' -f 1)
STAMP   := $(VENV)/quire-$(CONTENT)
# HDFS, for its tests: the jars that this file names.
HDFS    := $(VENV)/hdfs/of-$(shell cksum < tests/services/hdfs/pom.xml | cut -d ' ' -f 1)
# And what Spark's own committers for S3 and Azure need.
CLOUD   := $(VENV)/committers/of-$(shell cksum < tests/services/committers/pom.xml | cut -d ' ' -f 1)
# And a broker of Kafka.
KAFKA   := $(VENV)/kafka/of-$(shell cksum < tests/services/kafka/pom.xml | cut -d ' ' -f 1)
# And Spark's own connector to it, which loads are measured against.
PEER    := $(VENV)/connector/of-$(shell cksum < tests/benchmarks/kafka/pom.xml | cut -d ' ' -f 1)
# And Delta, which tables are measured against, with a Spark that it fits, in an environment of its own.
DELTA   := $(VENV)/delta/of-$(shell cat tests/benchmarks/table/pom.xml tests/benchmarks/table/requirements.txt | cksum | cut -d ' ' -f 1)
# And JVM Hudi, with a Spark that it fits, in an environment of its own.
SPARK35 := $(VENV)/spark35/of-$(shell cat tests/services/jvm_hudi/pom.xml tests/services/jvm_hudi/requirements.txt | cksum | cut -d ' ' -f 1)
# And Delta and Iceberg for that Spark, which read exports, and the server of a catalog, which follows them.
READERS := $(VENV)/readers/of-$(shell cksum < tests/services/export_readers/pom.xml | cut -d ' ' -f 1)
# Tables that JVM Hudi has written, which the source archive of hudi-rs has for its own tests.
HUDI    := $(VENV)/hudi/of-$(shell grep '^hudi==' constraints.txt | cksum | cut -d ' ' -f 1)
# Tests have a temporary directory of their own, which goes with them; Jupyter's settings and the user's are not looked at.
# Matplotlib's list of fonts stays: it takes a while to make.
TIDY := tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && TMPDIR=$$tmp IPYTHONDIR=$$tmp/ipython JUPYTER_CONFIG_DIR=$$tmp/jupyter \
    JUPYTER_DATA_DIR=$$tmp/jupyter/data JUPYTER_RUNTIME_DIR=$$tmp/jupyter/run MPLCONFIGDIR="$(CURDIR)/$(VENV)/matplotlib"
# Three processes, since tests wait a third of their time; tests/conftest.py says which stay together.
# A test that no signal ends says where it hangs, and ends with its process.
BOTH := --numprocesses 3 --dist loadfile -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true --max-worker-restart 2
# The demo's, which runs elsewhere, too.
DEMO  := demo
FILES := 5000
# Every cell's output is compared with what is kept.
NBVAL := --nbval --nbval-current-env --nbval-sanitize-with notebooks/nbval.cfg --nbval-cell-timeout 300 --nbval-kernel-startup-timeout 180
# The Java that is there, or one that is installed.
JAVA := $(BIN)/python -c 'from quire.spark.java import find_java; java = find_java(); print("Java", java.version, "from", java.found)' 2> /dev/null \
    || { echo "No Java 17 or newer here: installing one into $(VENV)."; $(PIP) -e ".[java]"; }
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

##@ Look

.PHONY: lab
lab: $(STAMP)-lab ## JupyterLab with what the notebooks need, opened at the first one
	$(BIN)/jupyter lab notebooks/00_quickstart.ipynb

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: demo-commands ## 5,000 small files become a few large ones, exactly once
	@echo; echo "The large files are in $(DEMO)/out, what quire knows about them is in $(DEMO)/out/_quire."
	@echo "Next: $(BIN)/quire --help, or $(BIN)/quire ledger --help"

.PHONY: demo-commands
demo-commands: $(if $(filter $(VENV)/bin,$(BIN)),$(STAMP)-core)
	rm -rf $(DEMO)
	$(BIN)/quire populate $(DEMO)/in --files $(FILES) --size 5KB --dirs 20 --dirty 0.01 --seed 7
	$(BIN)/quire consolidate $(DEMO)/in $(DEMO)/out --transform xml --target-size "8 MiB"
	@echo; echo "The same once more: everything is done already, so nothing is read and nothing is written twice."
	$(BIN)/quire consolidate $(DEMO)/in $(DEMO)/out --transform xml --target-size "8 MiB"
	$(BIN)/quire ledger summary $(DEMO)/out
	$(BIN)/quire skew $(DEMO)/out

##@ Check

.PHONY: test
test: $(STAMP)-test $(HUDI) ## all tests but the slow lanes below, then every notebook, cell by cell
	$(TIDY) $(BIN)/python -m pytest $(BOTH)
	$(TIDY) $(BIN)/python -m pytest $(BOTH) $(NBVAL) notebooks

.PHONY: test-services
test-services: $(STAMP)-test $(HDFS) $(CLOUD) $(KAFKA) $(SPARK35) ## what needs HDFS, Kafka and JVM Hudi (Java 17 or newer, and Maven), and what takes long: clusters, sessions, kills
	$(TIDY) $(BIN)/python -m pytest $(BOTH) -m "services and not nightly"

.PHONY: compat
compat: | $(BIN)/python ## the core on each pair of Python and Spark, in environments of their own: hours, 15 GB (ONLY="spark3.5 py3.12", SHORT=1)
	$(BIN)/python tests/compat $(if $(SHORT),--short) $(ONLY)

.PHONY: test-browser
test-browser: $(STAMP)-browser ## notebooks and widgets in a real JupyterLab, by mouse and by keyboard (PICTURES=directory keeps pictures)
	@$(BIN)/python -c 'import sys; sys.path.insert(0, "tests/browser"); import lab; lab.chromium()' 2> /dev/null \
	    || { $(BIN)/python -c 'import sys; sys.path.insert(0, "tests/browser"); import lab; sys.exit(lab.HOW)'; }
	$(TIDY) $(if $(PICTURES),QUIRE_PICTURES="$(abspath $(PICTURES))") $(BIN)/python -m pytest tests/browser

.PHONY: lint
lint: $(STAMP)-dev ## style, the arrows between the modules, the number of rooms, and plain English
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/python tests/house.py
	$(BIN)/python tests/english.py

.PHONY: house
house: $(STAMP)-dev ## the rooms, their floors and arrows, and the lines of code, each with its limit
	$(BIN)/python tests/house.py --rooms

.PHONY: types
types: $(STAMP)-dev ## the type checker
	$(BIN)/mypy

.PHONY: notebooks
notebooks: $(STAMP)-test ## run the notebooks again and keep their outputs; look at the diff before you commit it
	$(TIDY) $(BIN)/python tests/notebooks/refresh.py

.PHONY: pictures
pictures: $(STAMP)-browser ## make the pictures of the README again (needs Chromium)
	$(TIDY) $(BIN)/python tests/browser/pictures.py

.PHONY: format
format: $(STAMP)-dev ## put the code into its form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

##@ Check at length

.PHONY: bench
bench: $(STAMP)-test $(KAFKA) $(PEER) $(SPARK35) $(DELTA) ## measure against the peers, in the same run: hours, 12 GB of disk (AT=directory)
	@failed=; for one in populate gather first_task rerun ledger memory objects objects_s3 region names reading_cpu endtoend publish retire export read_ratio write_ratio \
	    kafka kafka_loop kafka_memory deduplicate table_bloom table_open table_clean table_upkeep table_year table_memory table_load table_peers; do \
	    echo; echo "== $$one"; $(BIN)/python tests/benchmarks/$$one.py $(if $(AT),--at $(AT)) || failed="$$failed $$one"; \
	done; [ -z "$$failed" ] || { echo "not all promises hold:$$failed" >&2; exit 1; }

.PHONY: chaos
chaos: $(STAMP)-test $(HDFS) $(KAFKA) ## real processes and services, really killed; each kill is written down (CHAOS_SEED=number, CHAOS_LOG=file)
	$(TIDY) $(BIN)/python -m pytest -m chaos

.PHONY: matrix
matrix: $(STAMP)-test $(HDFS) ## pipeline × committer × store, disturbed at every operation (RACES=interleavings, ONLY="--kinds disk azurite")
	$(TIDY) $(BIN)/python tests/matrix.py --races $(or $(RACES),2000) $(ONLY)

.PHONY: mutants
mutants: $(STAMP)-test $(HUDI) ## plant mistakes in copies of quire: each must be caught by a test (ONLY="words of names")
	$(TIDY) $(BIN)/python tests/mutants $(ONLY)

.PHONY: nightly
nightly: $(STAMP)-test $(HUDI) $(HDFS) $(CLOUD) $(KAFKA) $(SPARK35) $(READERS) ## what needs a service or an hour: also the matrix with 10,000 interleavings, and the mutants
	$(TIDY) $(BIN)/python -m pytest -m nightly
	$(MAKE) matrix RACES=$(or $(RACES),10000)
	$(MAKE) mutants

##@ Tidy

.PHONY: clean
clean: ## remove the demo, caches and builds
	rm -rf demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	find toolkit widgets tests notebooks -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## and the virtual environment
	rm -rf $(VENV)

# --- the virtual environment

$(BIN)/python:
	@for python in python3.13 python3.12 python3.11 python3; do \
	    if $$python -c '$(SUITABLE)' > /dev/null 2>&1; then \
	        echo "Making $(VENV) with $$python ($$($$python --version))"; \
	        exec $$python -m venv $(VENV); \
	    fi; \
	done; \
	echo "quire needs Python 3.11 or newer with its modules venv and ensurepip: none of python3.13, python3.12, python3.11, python3 is one." >&2; \
	exit 1

$(STAMP)-core: | $(BIN)/python
	@echo "Installing quire. PySpark comes as a source archive of some 450 MB: the first time takes a few minutes."
	$(PIP) -e .
	@$(JAVA)
	@touch $@

$(STAMP)-lab: | $(BIN)/python
	@echo "Installing quire and JupyterLab. PySpark comes as a source archive of some 450 MB: the first time takes a few minutes."
	$(PIP) -e ".[notebooks]"
	@$(JAVA)
	@touch $@

$(STAMP)-test: | $(BIN)/python
	@echo "Installing quire and what its tests need. PySpark comes as a source archive of some 450 MB: the first time takes a few minutes."
	$(PIP) -e ".[java,widgets,test]"
	@touch $@

$(HDFS): | $(BIN)/python
	@command -v mvn > /dev/null || { echo "The tests of HDFS need Java and Maven: install them (apt-get install maven openjdk-17-jre-headless)." >&2; exit 1; }
	@echo "Getting HDFS: some 70 MB."
	rm -rf $(VENV)/hdfs
	mvn -B -q -f tests/services/hdfs/pom.xml -Dmaven.repo.local="$(CURDIR)/$(VENV)/hdfs/repository" \
	    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$(VENV)/hdfs/jars"
	rm -rf $(VENV)/hdfs/repository
	@touch $@

$(CLOUD): | $(BIN)/python
	@command -v mvn > /dev/null || { echo "The tests of committers need Java and Maven: install them (apt-get install maven openjdk-17-jre-headless)." >&2; exit 1; }
	@echo "Getting Spark's committers for S3 and Azure: some 25 MB."
	rm -rf $(VENV)/committers
	mvn -B -q -f tests/services/committers/pom.xml -Dmaven.repo.local="$(CURDIR)/$(VENV)/committers/repository" \
	    dependency:copy-dependencies -DincludeScope=runtime -DexcludeGroupIds=org.slf4j -DoutputDirectory="$(CURDIR)/$(VENV)/committers/jars"
	rm -rf $(VENV)/committers/repository
	@touch $@

$(KAFKA): | $(BIN)/python
	@command -v mvn > /dev/null || { echo "The tests of Kafka need Java and Maven: install them (apt-get install maven openjdk-17-jre-headless)." >&2; exit 1; }
	@echo "Getting Kafka: some 45 MB."
	rm -rf $(VENV)/kafka
	mvn -B -q -f tests/services/kafka/pom.xml -Dmaven.repo.local="$(CURDIR)/$(VENV)/kafka/repository" \
	    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$(VENV)/kafka/jars"
	rm -rf $(VENV)/kafka/repository
	@touch $@

$(SPARK35): | $(BIN)/python
	@command -v mvn > /dev/null || { echo "The tests of JVM Hudi need Java and Maven: install them (apt-get install maven openjdk-17-jre-headless)." >&2; exit 1; }
	@echo "Getting Spark 3.5 and JVM Hudi: some 500 MB."
	rm -rf $(VENV)/spark35
	$(BIN)/python -m venv $(VENV)/spark35
	$(VENV)/spark35/bin/python -m pip install --disable-pip-version-check --no-cache-dir -r tests/services/jvm_hudi/requirements.txt
	mvn -B -q -f tests/services/jvm_hudi/pom.xml -Dmaven.repo.local="$(CURDIR)/$(VENV)/spark35/repository" \
	    dependency:copy -DoutputDirectory="$(CURDIR)/$(VENV)/spark35/jars"
	rm -rf $(VENV)/spark35/repository
	@touch $@

$(READERS): | $(BIN)/python
	@command -v mvn > /dev/null || { echo "The tests of exports in Spark need Java and Maven: install them (apt-get install maven openjdk-17-jre-headless)." >&2; exit 1; }
	@echo "Getting Delta and Iceberg for Spark 3.5, and a catalog's server: some 270 MB."
	rm -rf $(VENV)/readers
	mvn -B -q -f tests/services/export_readers/pom.xml -Dmaven.repo.local="$(CURDIR)/$(VENV)/readers/repository" \
	    dependency:copy -DoutputDirectory="$(CURDIR)/$(VENV)/readers/jars"
	rm -rf $(VENV)/readers/repository
	@touch $@

$(PEER): | $(BIN)/python
	@command -v mvn > /dev/null || { echo "Loads are measured against Spark's connector to Kafka, which needs Java and Maven: install them (apt-get install maven openjdk-17-jre-headless)." >&2; exit 1; }
	@echo "Getting Spark's connector to Kafka: some 10 MB."
	rm -rf $(VENV)/connector
	mvn -B -q -f tests/benchmarks/kafka/pom.xml -Dmaven.repo.local="$(CURDIR)/$(VENV)/connector/repository" \
	    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$(VENV)/connector/jars"
	rm -rf $(VENV)/connector/repository
	@touch $@

$(DELTA): | $(BIN)/python
	@command -v mvn > /dev/null || { echo "Tables are measured against Delta, which needs Java and Maven: install them (apt-get install maven openjdk-17-jre-headless)." >&2; exit 1; }
	@echo "Getting Spark 4.2 and Delta: some 500 MB."
	rm -rf $(VENV)/delta
	$(BIN)/python -m venv $(VENV)/delta
	$(VENV)/delta/bin/python -m pip install --disable-pip-version-check --no-cache-dir -r tests/benchmarks/table/requirements.txt
	mvn -B -q -f tests/benchmarks/table/pom.xml -Dmaven.repo.local="$(CURDIR)/$(VENV)/delta/repository" \
	    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$(VENV)/delta/jars"
	rm -rf $(VENV)/delta/repository
	@touch $@

$(HUDI): | $(BIN)/python
	@echo "Getting tables of Hudi: some 10 MB."
	rm -rf $(VENV)/hudi
	PYTHONPATH="$(CURDIR)/tests/table/archive" $(BIN)/python -m pip download --disable-pip-version-check --no-cache-dir -c constraints.txt \
	    --no-deps --no-binary hudi --no-build-isolation --dest $(VENV)/hudi/archive hudi
	$(BIN)/python tests/table/jvm.py $(VENV)/hudi/archive $(VENV)/hudi
	rm -rf $(VENV)/hudi/archive
	@touch $@

$(STAMP)-browser: $(STAMP)-test
	$(PIP) -e ".[browser]"
	@touch $@

$(STAMP)-dev: | $(BIN)/python
	$(PIP) -e ".[widgets,dev]"
	@touch $@
