"""The batch-softmax loss of large batches: one product for both directions, in linear memory on a GPU."""
