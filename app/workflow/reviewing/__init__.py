"""What a reviewer looks at: predictions of held-out rows, and what the kernel learned."""
