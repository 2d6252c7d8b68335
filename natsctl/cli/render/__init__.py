"""What commands show, as pure functions from the contract's models to text, pages and tables."""
