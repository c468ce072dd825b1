"""Compare two models.

Both models saw the same stimuli, so their scores are compared item by item. The interval is that of
the difference, and p is corrected for the number of benchmarks.
"""

import neuroledger as nl

found = nl.compare("efficientnet_lite2", "efficientnet_lite0", suite="real")
print(found)
nl.plot.differences(found)
