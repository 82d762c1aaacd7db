"""The driver's gauges, and a machine without them."""

import pynvml

from helpers.run.gpu import properties


def test_without_a_management_library_nothing_is_known(monkeypatch):
    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert properties.driver_version() is properties.clock_mhz() is properties.processes() is None


def test_a_gauge_that_the_driver_lacks_is_not_known(monkeypatch):
    def unsupported(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.95.05")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", unsupported)
    monkeypatch.setattr(properties, "_handle", lambda: object())
    assert properties.driver_version() == "580.95.05"
    assert properties.clock_mhz() is None
