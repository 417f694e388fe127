// Shows the server's own OpenAPI document. A file of its own, so that a strict content security policy need not allow inline code.
window.onload = () => {
  SwaggerUIBundle({ url: "/openapi/v2", dom_id: "#swagger-ui", deepLinking: true, docExpansion: "none", validatorUrl: null });
};
