"""Check a spec before it is used.

Specs are read strictly. Every error of the file is reported at once, with its line and the nearest
valid name.
"""

from neuroledger.errors import SpecError
from neuroledger.spec.document import parse
from neuroledger.spec.load import spec_of

TEXT = """\
id: MyLab2026.IT-rdm
version: 1
title: My IT neurons
dataset: MyLab2026
paradigm: {name: recordings, region: IT}
metrik: rdm
"""
try:
    spec_of(parse(TEXT, "MyLab2026.IT-rdm.yaml"), "benchmarks")
except SpecError as error:
    print(error)
