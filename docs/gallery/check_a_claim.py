"""Does a claim still hold?

A claim is a file that states which models are above which others. It is tested on the records; each
look lowers the level of the next one, so that looking often proves nothing.
"""

from neuroledger.engine.claims.standing import standing
from neuroledger.report.claims import claim_text
from neuroledger.spec.catalog import open_catalog

print(claim_text(standing(open_catalog(), "training.V4")))
