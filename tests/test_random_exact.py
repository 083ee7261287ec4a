"""Pruned equals masked on every network that the generator draws; `make fuzz` is the long run of the same."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.net_choices import DrawnChoices
from tests.random_nets import Spec, build, check, gammas, network_specs, random_mask


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(spec=network_specs(), data=st.data())
def test_pruned_is_masked(spec: Spec, data: st.DataObject) -> None:
    mask = random_mask(DrawnChoices(data.draw), gammas(build(spec)))
    check(spec, mask)
