"""The noise of a local field: of each observation that predictions rest on (`rows`), and of new ones (`smooth`, fitted by
`fit`)."""
