"""Value: balances, books, payments and the transporter."""
