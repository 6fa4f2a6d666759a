# For a CPU:  docker build -t proud .
# For CUDA:   docker build -t proud --build-arg TORCH=cu128 .   then: docker run --gpus all ...
ARG BASE=python:3.12-slim
FROM ${BASE}

# a part of PyTorch's package index: cpu, or a version of CUDA, whose libraries come with it
ARG TORCH=cpu
ARG EXTRAS=review,export,dicom

WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/${TORCH} \
    && pip install --no-cache-dir ".[${EXTRAS}]" \
    && rm -rf /source

RUN useradd --create-home proud
USER proud
WORKDIR /data
ENTRYPOINT ["proud"]
CMD ["--help"]
