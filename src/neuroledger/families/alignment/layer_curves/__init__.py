"""Layer curves: the stages of a network, its untrained twin, and the choice of a layer on other stimuli."""
