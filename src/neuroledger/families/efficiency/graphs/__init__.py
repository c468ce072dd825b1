"""Networks from files of exchange formats: NIR and ONNX."""
