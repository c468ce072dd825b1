"""What a record holds.

A record is a small JSON file: the score with its interval, and the hashes of everything that it was
computed from.
"""

import neuroledger as nl

[record] = [
    each
    for each in nl.records()
    if (each.model, each.benchmark) == ("gabor", "Digits.simulated.IT-ridge")
]
print(record.as_score())
print(record.id)
for name, control in record.controls.items():
    print(f"{name}: {control.value:.3f}, {control.verdict}")
