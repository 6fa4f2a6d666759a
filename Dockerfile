# docker build -t proud .   PyTorch with CUDA's libraries: on a GPU with `docker run --gpus all`, else on the CPU
# --build-arg TORCH_INDEX=ADDRESS   another package index for PyTorch, as that of its smaller builds for CPUs
# --build-arg BASE=IMAGE            another base with Python 3.11 or newer, as one of NVIDIA's or PyTorch's for CUDA
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG TORCH_INDEX=
ARG EXTRAS=review,export,dicom

WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir torch torchvision ${TORCH_INDEX:+--index-url ${TORCH_INDEX}} \
    && pip install --no-cache-dir ".[${EXTRAS}]" \
    && rm -rf /source

RUN useradd --create-home proud
USER proud
WORKDIR /data
ENTRYPOINT ["proud"]
CMD ["--help"]
