"""The TensorFlow stand-in for Brain-Score's mask regression has the gradients that torch computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.parity import tensorflow1


def test_a_readout_through_masks_has_the_slopes_of_torch_and_adam_takes_its_steps() -> (
    None
):
    rng = np.random.default_rng(0)
    maps, answers = rng.normal(size=(6, 4, 3, 5)), rng.normal(size=(6, 2))
    first = [
        (rng.normal(size=(1, 4, 3, 1)), rng.normal(size=(1, 1, 5, 1))) for _ in range(2)
    ]
    ring = np.array([0, -1, 0, -1, 4, -1, 0, -1, 0], dtype=float).reshape(3, 3, 1, 1)
    tf: Any = tensorflow1.module()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        rate, shown, seen = (
            v1.placeholder(dtype=tf.float32, shape=shape)
            for shape in (None, maps.shape, answers.shape)
        )
        weights = [
            [tf.Variable(initial_value=part, dtype=tf.float32) for part in pair]
            for pair in first
        ]
        offsets = [
            tf.Variable(initial_value=np.zeros((1, 1, 1, 1)), dtype=tf.float32)
            for _ in range(2)
        ]
        read = []
        for (mask, channels), offset in zip(weights, offsets, strict=True):
            pooled = tf.reduce_sum(
                input_tensor=mask * shown, axis=[1, 2], keepdims=True
            )
            mixed = tf.nn.conv2d(
                input=pooled, filters=channels, strides=[1, 1, 1, 1], padding="SAME"
            )
            read.append(tf.squeeze(mixed, axis=[1, 2]) + offset)
        error = tf.norm(tensor=tf.concat(read, -1) - seen, ord=2)
        rough = [
            tf.norm(
                tensor=tf.nn.conv2d(
                    input=mask,
                    filters=tf.constant(ring),
                    strides=[1, 1, 1, 1],
                    padding="SAME",
                )
            )
            for mask, _ in weights
        ]
        squares = [
            tf.reduce_sum(input_tensor=tf.pow(part, 2))
            for pair in weights
            for part in pair
        ]
        loss = error + 0.1 * (
            tf.reduce_sum(input_tensor=rough) + tf.reduce_sum(input_tensor=squares)
        )
        variables = v1.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)
        step = v1.train.AdamOptimizer(learning_rate=rate).minimize(
            loss, var_list=variables
        )
        session = v1.Session()
        session.run(
            v1.variables_initializer(v1.get_collection(v1.GraphKeys.GLOBAL_VARIABLES))
        )
        losses = [
            session.run([step, loss], {rate: 0.01, shown: maps, seen: answers})[1]
            for _ in range(3)
        ]

    there = [
        [torch.tensor(part, requires_grad=True) for part in pair] for pair in first
    ]
    moved = [torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    parts = [part for pair in there for part in pair] + moved
    adam = torch.optim.Adam(parts, lr=0.01, eps=1e-14)
    laplace = torch.tensor(ring).permute(3, 2, 0, 1)
    expected = []
    for _ in range(3):
        adam.zero_grad()
        predictions = [
            torch.einsum(
                "nyxc,yx,c->n",
                torch.tensor(maps),
                mask[0, :, :, 0],
                channels[0, 0, :, 0],
            )
            + offset
            for (mask, channels), offset in zip(there, moved, strict=True)
        ]
        whole = torch.linalg.norm(
            torch.stack(predictions, dim=1) - torch.tensor(answers)
        )
        for mask, channels in there:
            whole = whole + 0.1 * torch.linalg.norm(
                torch.nn.functional.conv2d(mask.permute(0, 3, 1, 2), laplace, padding=1)
            )
            whole = whole + 0.1 * ((mask**2).sum() + (channels**2).sum())
        expected.append(whole.item())
        whole.backward()
        adam.step()
    np.testing.assert_allclose(losses, expected, rtol=1e-7)
    trained = [part.held for pair in weights for part in pair]
    for value, other in zip(trained, parts[:4], strict=True):
        np.testing.assert_allclose(value, other.detach().numpy(), atol=1e-7)
