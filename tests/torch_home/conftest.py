"""What the tests of momentous.torch share."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads that wait for each other in small operations are slow where others work too."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
