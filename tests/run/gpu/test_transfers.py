"""Arrays that travel to the device and back."""

import types

import numpy as np

from helpers.run.gpu.transfers import OnDevice


class DeviceArray(np.ndarray):
    def set(self, values):
        self[...] = values

    def get(self):
        return np.array(self)


FAKE_MEMORY = types.SimpleNamespace(empty=lambda size, dtype: np.zeros(size, dtype).view(DeviceArray))


def test_arrays_travel_there_and_back():
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, np.float16)
    there = OnDevice(FAKE_MEMORY, [np.int32(7), a, None, b, a])
    assert there.args[0] == 7 and there.args[2] == 0 and there.args[2].nbytes == 8
    assert there.args[1] is there.args[4], "the same array twice is one array on the device"
    there.args[1].view(np.float32)[...] += 1
    there.fetch()
    assert a.tolist() == [[1, 2, 3], [4, 5, 6]] and b.tolist() == [1, 1, 1, 1]


def test_overlapping_arrays_overlap_on_the_device():
    whole = np.zeros(8, np.float32)
    there = OnDevice(FAKE_MEMORY, [whole[:5], whole[3:], np.zeros(0, np.float32)])
    there.args[0].view(np.float32)[3] = 5
    assert there.args[1].view(np.float32)[0] == 5
    there.args[1].view(np.float32)[1] = 6
    assert there.args[0].view(np.float32)[4] == 6
    there.fetch()
    assert whole.tolist() == [0, 0, 0, 5, 6, 0, 0, 0]


def test_read_only_arrays_stay_untouched():
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    there = OnDevice(FAKE_MEMORY, [frozen])
    there.fetch()
    assert frozen.tolist() == [0, 0, 0, 0]
