# The sidecar, from this checkout:
#
#     docker build -t bitcal .
#     docker run -p 127.0.0.1:8100:8100 -v bitcal-state:/state -e BITCAL_SERVE_KEY=... bitcal --upstream http://llama:8080 --risk 0.02
#
# It needs no torch: texts are read with numpy, and a promise is earned or fitted with trees.
FROM python:3.11-slim
# OpenMP, which LightGBM fits with.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir '/src[serve,fit]' && rm -rf /src && useradd --create-home bitcal && install -d -o bitcal /state
USER bitcal
VOLUME /state
EXPOSE 8100
# Outside of the container nobody is on 127.0.0.1: another address needs a key, which clients send as their API key.
ENTRYPOINT ["bitcal", "serve", "--host", "0.0.0.0", "--state", "/state"]
CMD ["--help"]
