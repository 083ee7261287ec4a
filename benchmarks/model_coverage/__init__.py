"""How far otprune and Torch-Pruning get with the models of torchvision, timm and other libraries."""
