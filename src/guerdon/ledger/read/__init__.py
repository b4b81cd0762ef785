"""What people and programs read: balances, statements, exports, stakes."""
