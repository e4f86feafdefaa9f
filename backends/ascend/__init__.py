"""The Ascend backend: kernels for Huawei Ascend 950. None exist yet."""
