"""What is measured of this device, beside what its maker publishes."""

from __future__ import annotations

from emmy_eq.codegen.calibrate import calibrate, present


def test_figures_are_near_the_published_ones() -> None:
    """None is over its peak by more than clocks vary; a launch in a graph is a microsecond or a few, from Python tens."""
    on = present()
    said: list[str] = []
    found = calibrate(on, said.append)
    shares = {name: found.sustained[name] / peak for name, peak in on.published.items()}
    assert len(said) == 1 + len(shares)
    assert all(0.2 < share < 1.15 for share in shares.values()), shares
    assert 0.5e-6 < found.launch_seconds < 5e-6 < found.host_launch_seconds < 100e-6
