"""Images and responses of a data set.

A data set is loaded with its stimuli, verified against their hashes. Here three images and the mean
spike counts of 50 neurons in macaque V4.
"""

import io

import matplotlib.pyplot as plt
from PIL import Image

import neuroledger as nl

data = nl.load("Cowley2023.210325")
print(data)
three = data.stimuli.ids[:3]
figure, panels = plt.subplots(1, 3, figsize=(6.4, 2.6))
for panel, image, content in zip(panels, three, data.stimuli.read(three), strict=True):
    shown = data.assembly[data.assembly["stimulus_id"].values == image]
    panel.imshow(Image.open(io.BytesIO(content)))
    panel.set_title(f"{float(shown.mean()):.2f} spikes", fontsize=9)
    panel.axis("off")
