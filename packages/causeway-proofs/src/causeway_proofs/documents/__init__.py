"""Proofs as documents: a proof of any family with what it claims, and what is trusted, as people keep them in files.

``reading`` reads files into documents, ``trust`` what is trusted, ``kinds`` knows every kind by its name, and
``verdict`` says whether a document is true. One module a family defines the documents of its kinds. The form is
described in docs/how-to/verify-a-proof.md.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
