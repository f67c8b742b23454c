"""Encoders: loading, embedding texts, exporting, ignoring parts of texts, the search index."""
