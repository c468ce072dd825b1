"""Why two scores differ.

`nl.why` exchanges the fields of two definitions one by one and gives each its share of the
difference. Here the model and the metric both differ.
"""

import neuroledger as nl

print(
    nl.why(
        ("pixels16", "Digits.simulated.V4-pls"),
        ("gabor", "Digits.simulated.V4-ridgecv"),
    )
)
