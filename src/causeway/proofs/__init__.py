"""Hash trees and proofs that other people's software accepts: one folder a family, and what they share."""
