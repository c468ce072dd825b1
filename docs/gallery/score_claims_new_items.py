"""What an interval covers.

An interval covers new items of every factor that varies: here new stimuli and new neurons.
`replace` narrows the claim to new stimuli, and with it the interval.
"""

import neuroledger as nl

score = nl.score("pixels16", "Digits.simulated.V4-pls")
stimuli = score.replace(generalise=("stimulus",))
for each in (score, stimuli):
    print(f"{each:.3f}: {each.interval_covers}")
