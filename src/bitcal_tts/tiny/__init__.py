"""The model in the box: corpus, training, weights."""
