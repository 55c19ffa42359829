"""The network in training, and the batches that it is trained with."""
