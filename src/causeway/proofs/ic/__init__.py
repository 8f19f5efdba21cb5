"""The Internet Computer's certification: canonical encodings, hash trees, witnesses, certificates, stream slices."""
