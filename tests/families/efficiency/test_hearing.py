"""Input representations of sounds, compared with SciPy's transforms and with values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy.signal import ShortTimeFFT

from neuroledger.errors import DataError, RequestError
from neuroledger.families.efficiency.sound.hearing import (
    Hearing,
    band_energies,
    band_filters,
    changes,
    represent,
    resample_sound,
)

RATE = 16000


def hearing(**fields):
    return TypeAdapter(Hearing).validate_python(fields)


def sine(pitch, rate=RATE, count=1, seconds=1.0):
    return np.tile(
        np.sin(2 * np.pi * pitch * np.arange(round(rate * seconds)) / rate),
        (count, 1, 1),
    )


def test_filters_are_triangles_evenly_spaced_on_the_mel_scale():
    filters = band_filters(16000, 512, 20, 20, 4000)
    assert filters.shape == (20, 257)
    frequencies = np.arange(257) * 16000 / 512
    mels = 2595 * np.log10(1 + np.array([20, 4000]) / 700)
    corners = 700 * (10 ** (np.linspace(*mels, 22) / 2595) - 1)
    for band in range(20):
        inside = (frequencies > corners[band]) & (frequencies < corners[band + 2])
        assert np.array_equal(filters[band] > 0, inside)
        expected = np.interp(
            frequencies, corners[band : band + 3], [0, 1, 0], left=0, right=0
        )
        assert np.allclose(filters[band], expected, atol=1e-12)


def test_energies_are_those_of_scipys_transform():
    sound = np.random.default_rng(0).normal(size=(3, RATE))
    representation = band_energies(
        sound, RATE, points=512, hop=64, bands=20, low=20, high=4000
    )
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(512) / 512)
    transform = ShortTimeFFT(window, hop=64, fs=RATE, phase_shift=None)
    padded = np.pad(sound, ((0, 0), (256, 256)), mode="reflect")
    power = np.abs(transform.stft(padded)) ** 2
    first = int(
        np.searchsorted(transform.t(padded.shape[1]) * RATE, 256 - 1e-6)
    )  # centred on the first sample
    power = power[:, :, first : first + 251]
    expected = np.log(
        np.einsum("bf,cft->cbt", band_filters(RATE, 512, 20, 20.0, 4000.0), power)
        + 1e-6
    )
    assert representation.shape == (3, 20, 251) and np.allclose(
        representation, expected, atol=1e-9
    )


def test_a_tone_is_loudest_in_the_band_around_its_pitch():
    mels = 2595 * np.log10(1 + np.array([20, 4000]) / 700)
    centres = 700 * (10 ** (np.linspace(*mels, 22)[1:-1] / 2595) - 1)
    for band in (5, 10, 18):
        representation = represent(hearing(name="bands"), sine(centres[band]), RATE)
        assert (
            representation.shape == (1, 20, 201) and representation.dtype == np.float32
        )
        assert representation.mean(axis=2).argmax() == band


def test_bands_depend_on_the_rate_of_the_sound():
    slow = represent(hearing(name="bands", hop=5), sine(700, 16000), 16000)
    fast = represent(hearing(name="bands", hop=5, window=1536), sine(700, 48000), 48000)
    assert slow.shape == fast.shape == (1, 20, 201)
    assert slow.mean(axis=2).argmax() == fast.mean(axis=2).argmax()


def test_changes_follow_their_definition():
    signal = np.array([0.4, 0.4, 1.6, 3.0, 3.0, 3.0, -5.0, -5.0])
    #  level            0    0    1    2    2    2    1: one step for each value, never more
    assert changes(signal, 1.0).tolist() == [0, 1, 1, 0, 0, -1, -1]
    assert changes(signal + 100, 1.0).tolist() == changes(signal, 1.0).tolist()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-20, 20), min_size=2, max_size=30), st.floats(0.1, 5))
def test_the_level_of_spikes_never_overshoots(values, step):
    signal = np.array(values)
    spikes = changes(signal, step)
    level = np.rint(signal[0]) + step * np.cumsum(spikes)
    before = np.concatenate([[np.rint(signal[0])], level[:-1]])
    assert set(spikes.tolist()) <= {-1.0, 0.0, 1.0}
    assert np.all(
        np.abs(signal[1:] - level)
        <= np.maximum(np.abs(signal[1:] - before), step) + 1e-9
    )


def test_spikes_have_one_frame_fewer_than_energies_and_three_values():
    sound = np.random.default_rng(0).normal(size=(2, 1, RATE))
    representation = represent(hearing(name="spikes", hop=5), sound, RATE)
    assert representation.shape == (2, 20, 200) and set(np.unique(representation)) == {
        -1.0,
        0.0,
        1.0,
    }
    energies = represent(hearing(name="bands", hop=5), sound, RATE)
    assert np.array_equal(representation, changes(energies.astype(np.float64), 1.0))


def test_a_waveform_keeps_a_tone_at_another_rate():
    representation = represent(
        hearing(name="waveform", rate=8000), sine(440, 48000), 48000
    )
    assert representation.shape == (1, 1, 8000)
    assert np.allclose(
        representation[0, 0, 500:-500], sine(440, 8000)[0, 0, 500:-500], atol=5e-3
    )
    assert np.array_equal(
        represent(hearing(name="waveform", rate=RATE), sine(5), RATE),
        sine(5).astype(np.float32),
    )


def test_invalid_sounds_and_bands_are_refused():
    with pytest.raises(
        RequestError, match=r"bands from 20 to 4000 Hz are not within 0 and 3000 Hz"
    ):
        represent(hearing(name="bands"), sine(5, 6000), 6000)
    with pytest.raises(RequestError, match=r"band 2 of 200 contains no frequency"):
        represent(hearing(name="bands", bands=200), sine(5), RATE)
    with pytest.raises(RequestError, match=r"a hop of 5 ms is 55\.125 samples"):
        represent(hearing(name="bands"), sine(5, 11025), 11025)
    with pytest.raises(DataError, match=r"one channel each, not \(1, 2, 16000\)"):
        represent(hearing(name="bands"), np.zeros((1, 2, RATE)), RATE)
    with pytest.raises(RequestError, match="both must be whole numbers"):
        resample_sound(np.zeros(10), 16000.5, 8000)
    with pytest.raises(ValidationError):
        hearing(name="bands", bands=0)


def test_every_window_and_length_gives_a_frame_for_every_hop():
    for window, time in ((511, 16000), (400, 15999), (512, 300), (16, 160)):
        sound = np.random.default_rng(0).normal(size=(2, time))
        representation = band_energies(
            sound, RATE, points=window, hop=160, bands=2, low=0, high=8000
        )
        assert (
            representation.shape == (2, 2, 1 + time // 160)
            and np.isfinite(representation).all()
        )
