"""Bytes to samples: raw encodings, streams of container data, files."""
