"""All that makes training material: pairs, files, datasets, splits, negatives."""
