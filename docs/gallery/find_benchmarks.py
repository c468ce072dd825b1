"""Find benchmarks.

Specs are a table: each field is a column, and keywords filter.
"""

import neuroledger as nl

found = nl.find("benchmarks", parent="IT")
print(len(found), "benchmarks of IT")
real = found[found["dataset"].str.startswith("Kriegeskorte")]
print(real["title"].to_string())
print(nl.find("datasets").loc["Kriegeskorte2008", "license"])
