"""How likely rows make a local GP, and what makes them likely: rows given their neighbours (`conditional`, fitted by
`minibatches`), and all rows at once (`restricted`, fitted by `together`)."""
