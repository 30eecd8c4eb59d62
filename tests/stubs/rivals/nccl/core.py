"""Stands for NCCL's Python interface."""

import os


def get_unique_id():
    return os.urandom(8)


class Communicator:
    @staticmethod
    def init(nranks, rank, unique_id):
        assert len(unique_id) == 8
        return Communicator()

    def destroy(self):
        pass
