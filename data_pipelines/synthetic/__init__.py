"""A made-up world whose truth is known, written exactly as Ookla and the Census publish, so that the real readers read it."""

from data_pipelines.synthetic.folder import load_world, world_folder, write_world
from data_pipelines.synthetic.world import World

__all__ = ["World", "load_world", "world_folder", "write_world"]
