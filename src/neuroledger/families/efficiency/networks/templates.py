"""Templates moved over a scene: where one responds more than all around it, there is a box."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Templates"]

BORDER = 2


class Templates(nn.Module):  # type: ignore[misc]
    """For (batch, pixel, time_bin), (batch, box, 4 + class): corners, and the contrast as the score of its class.

    Scenes are ``side`` pixels wide and ``rows`` high (as many, where not said), and the mean of their ``channels``.
    """

    def __init__(
        self,
        side: int,
        sizes: Sequence[tuple[int, int]],
        threshold: float,
        most: int,
        *,
        rows: int | None = None,
        channels: int = 1,
    ) -> None:
        super().__init__()
        self.shape = (channels, side if rows is None else rows, side)
        self.sizes, self.threshold, self.most = list(sizes), threshold, most
        self.reach = max(max(size) for size in sizes) + 2 * BORDER
        self.templates = nn.Conv2d(1, len(sizes), self.reach, bias=False)
        self.rectify = nn.Threshold(threshold, 0.0)
        with torch.no_grad():
            for weight, (width, height) in zip(self.templates.weight[:, 0], sizes, strict=True):
                weight.zero_()
                x, y = (self.reach - width) // 2, (self.reach - height) // 2
                around = weight[y - BORDER : y + height + BORDER, x - BORDER : x + width + BORDER]
                around.fill_(-1.0 / (around.numel() - width * height))
                weight[y : y + height, x : x + width] = 1.0 / (width * height)

    def forward(self, inputs: Tensor) -> Tensor:
        """Boxes, those of the highest contrast first; where there are fewer than ``most``, scores of 0."""
        scene = inputs.mean(2).unflatten(1, self.shape).mean(1, keepdim=True)
        edge = self.reach // 2
        padded = nn.functional.pad(scene, (edge,) * 4, mode="reflect")
        responses = self.rectify(self.templates(padded))
        wide = 2 * (min(min(size) for size in self.sizes) // 2) + 1
        highest = nn.functional.max_pool2d(responses.amax(1, keepdim=True), wide, 1, wide // 2)
        peaks = responses * (responses == highest)
        count = min(self.most, peaks[0].numel())
        scores, places = peaks.flatten(1).topk(count)
        rows, columns = peaks.shape[-2:]
        kind, place = places // (rows * columns), places % (rows * columns)
        sizes = torch.tensor(self.sizes, device=inputs.device)[kind]
        first = torch.stack([place % columns, place // columns], 2) - edge
        corner = first + torch.div(self.reach - sizes, 2, rounding_mode="floor")
        answer = scores.new_zeros((*scores.shape, 4 + len(self.sizes)))
        answer[..., :2], answer[..., 2:4] = corner, corner + sizes
        return answer.scatter(2, kind.unsqueeze(2) + 4, scores.unsqueeze(2))
