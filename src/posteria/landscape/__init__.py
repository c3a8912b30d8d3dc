"""The shape of the loss: paths between modes, planes, and how flat a minimum is."""
