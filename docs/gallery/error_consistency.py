"""Do two observers make the same errors?

Error consistency is Cohen's kappa of being right or wrong: 0 if the errors coincide by chance, 1 if
they always coincide. Here one person is compared with the others who named the same edge drawings.
"""

import neuroledger as nl

answers = nl.load("Geirhos2021.edge").assembly
first, *others = sorted(set(answers["subject"].values))
person = answers[answers["subject"].values == first].drop_vars("subject")
people = answers[answers["subject"].values != first]
right = float((person == person["truth"]).mean())
print(f"{first} names {right:.3f} of the drawings correctly")
print("consistency with the others:", nl.metric("error_consistency")(person, people))
print("among the others:", nl.ceiling("error_consistency")(people))
