"""stub"""

from data_pipelines.sources import ookla

collect = ookla.collect
