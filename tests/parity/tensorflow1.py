"""Runs in Brain-Score's own environment: the operations of tensorflow 1 that its mask regression uses, in numpy.

Tensorflow 1 cannot be installed together with its other packages. This is a graph of these operations in double precision,
with gradients by the chain rule, and Adam by its documentation; the training loop, the loss, the random draws
and the predictions are Brain-Score's own code. ``install()`` installs it as ``tensorflow``.
"""

import contextlib
import sys
import types

import numpy as np

COLLECTIONS = {"trainable": [], "global": []}


def summed_to(slope, shape):
    """The gradient of an array that was broadcast to another shape."""
    slope = slope.sum(axis=tuple(range(slope.ndim - len(shape))))
    stretched = tuple(
        n for n, size in enumerate(shape) if size == 1 and slope.shape[n] != 1
    )
    return slope.sum(axis=stretched, keepdims=True)


class Tensor:
    """A node: its value from those of its parents, and their gradients from its own."""

    def __init__(self, parents=(), value=None, slopes=None, shape=None):
        self.parents, self.value, self.slopes, self.shape = (
            parents,
            value,
            slopes,
            shape,
        )

    def __mul__(self, other):
        return Tensor(
            (self, tensor(other)), np.multiply, lambda g, a, b: (g * b, g * a)
        )

    def __add__(self, other):
        return Tensor((self, tensor(other)), np.add, lambda g, a, b: (g, g))

    def __sub__(self, other):
        return Tensor((self, tensor(other)), np.subtract, lambda g, a, b: (g, -g))

    __rmul__, __radd__ = __mul__, __add__


class Variable(Tensor):
    """A node with a stored array."""

    def __init__(self, initial_value, dtype=None):
        super().__init__()
        self.initial = np.asarray(initial_value, dtype=np.float64)
        self.held = None
        COLLECTIONS["trainable"].append(self)
        COLLECTIONS["global"].append(self)


def tensor(value):
    """A node from a node, a number or an array."""
    return (
        value
        if isinstance(value, Tensor)
        else Tensor((), lambda: np.asarray(value, dtype=np.float64))
    )


def placeholder(dtype=None, shape=None):
    """A node whose value is passed with each run."""
    return Tensor(shape=None if shape is None else tuple(shape))


def reduce_sum(input_tensor, axis=None, keepdims=False):
    """The sum over axes, or of a list of nodes."""
    if isinstance(input_tensor, list):
        total = tensor(input_tensor[0])
        for one in input_tensor[1:]:
            total = total + one
        return total
    axes = None if axis is None else tuple(axis)

    def slopes(g, a):
        return (
            np.broadcast_to(
                g if keepdims or axes is None else np.expand_dims(g, axes), a.shape
            ),
        )

    return Tensor(
        (input_tensor,), lambda a: a.sum(axis=axes, keepdims=keepdims), slopes
    )


def norm(tensor, ord=2):
    """The root of the sum of all squares."""
    assert ord == 2
    return Tensor(
        (tensor,),
        lambda a: np.sqrt((a * a).sum()),
        lambda g, a: (g * a / np.sqrt((a * a).sum()),),
    )


def power(value, exponent):
    """A power of each number."""
    return Tensor(
        (value,),
        lambda a: a**exponent,
        lambda g, a: (g * exponent * a ** (exponent - 1),),
    )


def squeeze(input, axis):
    """Remove axes of length one."""
    return Tensor(
        (input,),
        lambda a: np.squeeze(a, tuple(axis)),
        lambda g, a: (g.reshape(a.shape),),
    )


def concat(values, axis):
    """Concatenation of nodes."""

    def slopes(g, *parts):
        return np.split(
            g, np.cumsum([part.shape[axis] for part in parts])[:-1], axis=axis
        )

    return Tensor(
        tuple(values), lambda *parts: np.concatenate(parts, axis=axis), slopes
    )


def windows(a, high, wide):
    """All windows of a zero-padded map: (row, y, x, channel, window's y, window's x)."""
    around = [(0, 0), (high // 2, high // 2), (wide // 2, wide // 2), (0, 0)]
    return np.lib.stride_tricks.sliding_window_view(
        np.pad(a, around), (high, wide), axis=(1, 2)
    )


def conv2d(input, filters, strides, padding):
    """Convolution of zero-padded maps (row, y, x, channel) with filters (y, x, channel, filter) of odd size."""
    assert strides == [1, 1, 1, 1] and padding == "SAME"

    def value(a, f):
        return np.einsum("nyxcij,ijco->nyxo", windows(a, *f.shape[:2]), f)

    def slopes(g, a, f):
        turned = f[::-1, ::-1].transpose(0, 1, 3, 2)
        return value(g, turned), np.einsum(
            "nyxcij,nyxo->ijco", windows(a, *f.shape[:2]), g
        )

    return Tensor((input, tensor(filters)), value, slopes)


class AdamOptimizer:
    """Adam in the form of the end of section 2 of Kingma and Ba, as tensorflow 1 documents it."""

    def __init__(self, learning_rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.rate, self.decays, self.small = learning_rate, (beta1, beta2), epsilon
        self.step, self.moments = 0, {}

    def minimize(self, loss, var_list, global_step=None):
        """A node that takes one training step when it is run."""
        step = Tensor()
        step.update = lambda known: self.descend(loss, var_list, known)
        return step

    def descend(self, loss, variables, known):
        """Update the variables by the gradient of the loss."""
        evaluate(loss, known)
        rate, slopes = float(evaluate(self.rate, known)), gradient(loss, known)
        self.step += 1
        first, second = self.decays
        rate *= np.sqrt(1 - second**self.step) / (1 - first**self.step)
        for one in variables:
            slope = slopes[id(one)]
            mean, square = self.moments.get(id(one), (0.0, 0.0))
            mean = first * mean + (1 - first) * slope
            square = second * square + (1 - second) * slope**2
            self.moments[id(one)] = mean, square
            one.held = one.held - rate * mean / (np.sqrt(square) + self.small)


def evaluate(node, known):
    """The value of a node; each node is computed once in a run."""
    if id(node) not in known:
        if isinstance(node, Variable):
            known[id(node)] = node.held
        else:
            known[id(node)] = node.value(
                *(evaluate(one, known) for one in node.parents)
            )
    return known[id(node)]


def gradient(loss, known):
    """Gradients of a loss, by the identity of the nodes from which it is computed."""
    order, seen = [], set()

    def visit(node):
        if id(node) not in seen:
            seen.add(id(node))
            for one in node.parents:
                visit(one)
            order.append(node)

    visit(loss)
    slopes = {id(loss): np.ones_like(known[id(loss)])}
    for node in reversed(order):
        if node.parents:
            values = [known[id(one)] for one in node.parents]
            parts = node.slopes(slopes[id(node)], *values)
            for one, value, slope in zip(node.parents, values, parts, strict=True):
                slopes[id(one)] = slopes.get(id(one), 0.0) + summed_to(
                    np.asarray(slope), value.shape
                )
    return slopes


class Session:
    """Runs nodes; training steps are run last, with the values computed before."""

    def __init__(self, config=None):
        pass

    def run(self, fetches, feed_dict=None):
        """Values of the nodes; None for a training step."""
        if not isinstance(fetches, list):
            return self.run([fetches], feed_dict)[0]
        known = {
            id(node): np.asarray(value, dtype=np.float64)
            for node, value in (feed_dict or {}).items()
        }
        found = [
            None if hasattr(one, "update") else evaluate(one, known) for one in fetches
        ]
        for one in fetches:
            if hasattr(one, "update"):
                one.update(known)
        return found

    def close(self):
        """Nothing to release."""


def initializer(variables):
    """A node that sets variables to their initial values when it is run."""

    def begin(_):
        for one in variables:
            one.held = one.initial.copy()

    step = Tensor()
    step.update = begin
    return step


class Graph:
    """A new graph, which clears the collections."""

    def __init__(self):
        COLLECTIONS.clear()
        COLLECTIONS.update({"trainable": [], "global": []})

    @contextlib.contextmanager
    def as_default(self):
        """The context of the only graph."""
        yield self


def module():
    """The operations under their names in ``tensorflow``."""
    names = types.SimpleNamespace
    v1 = names(
        placeholder=placeholder,
        Session=Session,
        variable_scope=lambda name: contextlib.nullcontext(),
        variables_initializer=initializer,
        add_to_collection=lambda name, one: COLLECTIONS.setdefault(name, []).append(
            one
        ),
        get_collection=lambda name: list(COLLECTIONS.get(name, [])),
        GraphKeys=names(TRAINABLE_VARIABLES="trainable", GLOBAL_VARIABLES="global"),
        train=names(
            AdamOptimizer=AdamOptimizer, get_or_create_global_step=lambda: None
        ),
        reset_default_graph=lambda: None,
    )
    made = types.ModuleType("tensorflow")
    found = {
        "compat": names(v1=v1),
        "nn": names(conv2d=conv2d),
        "pow": power,
        "float32": "float32",
    }
    found |= {
        "Graph": Graph,
        "Variable": Variable,
        "reduce_sum": reduce_sum,
        "squeeze": squeeze,
        "norm": norm,
    }
    vars(made).update(
        found | {"concat": concat, "constant": lambda value, dtype=None: tensor(value)}
    )
    return made


def install():
    """Install the operations as the module ``tensorflow``."""
    sys.modules["tensorflow"] = module()
