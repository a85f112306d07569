"""Armslength: does changing this part of an RLVR objective really help, or is it the noise of training again?"""
