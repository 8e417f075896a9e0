"""How many blocks of the cluster kernels a card holds at once."""

SMS = 132  # of an H100 or H200: of plans, which are the same on every machine
RESIDENT = {1: 132, 2: 132, 4: 120, 8: 120, 16: 112}  # blocks in clusters of a size that it holds, one to an SM


def resident(cluster: int, sms: int) -> int:
    """Blocks, in whole clusters of a size, that a card with `sms` SMs holds, one to an SM; in proportion to an H200."""
    return RESIDENT[cluster] * sms // SMS // cluster * cluster
